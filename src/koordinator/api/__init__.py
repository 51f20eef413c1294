"""The wire contract: types, codecs, quantities, names of labels and annotations, defaults, validation, CRDs."""
