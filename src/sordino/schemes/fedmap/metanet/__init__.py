"""MetaNet (FedMAP, section 3.1): a small encoder that reads the last five steps and sets the bound and the noise.

    bert        the encoder, in BERT's form; its weights may come from a local checkpoint
    net         encoder, input projection and head; what is trained and what stays frozen
    features    what the controller is shown, and how its two outputs are read
    synthetic   the documented generator behind the weights that ship with the package
    pretrain    training on it; ``sordino metanet pretrain``

Only `net`, `bert` and `pretrain` need torch.
"""
