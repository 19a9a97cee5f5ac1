"""Features of pictures and signals that no data is needed for, and what is asked of the data to centre them.

    generator    synthetic pictures, from a seed
    filters      filters from synthetic pictures
    maps         the feature map: responses, thresholds, pooling
    examples     what is done to the features of one example: unit length, power, a given mean, damped directions
    extractor    all of the above for one recipe and one shape of data, under one digest
    cache        features of one client on disk
    statistics   sums over the data that are released with noise: mean, covariance
    recipe       the settings by shape of data and epsilon

Everything but `statistics` is a function of one example and public arrays: it costs no privacy.
"""
