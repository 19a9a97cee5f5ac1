"""A finished run in use: `sordino.load`, predictions, ONNX, and the model card."""
