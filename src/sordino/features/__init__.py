"""Features of pictures and signals that no data is needed for.

    generator    synthetic pictures, from a seed
    filters      filters from synthetic pictures
    levels       signals on one scale, and how high and wide they lay
    maps         the feature map: responses, thresholds, pooling
    examples     what is done to the features of one example: unit length, power, a given mean, damped directions
    extractor    all of the above for one recipe and one shape of data, under one digest
    cache        features of one client on disk
    recipe       the settings, by shape of data

Everything is a function of one example and public arrays: it costs no privacy. The mean that centres features is released as part
of a plan (`sordino.preparation.features`).
"""
