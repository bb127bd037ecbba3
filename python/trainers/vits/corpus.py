"""A prepared corpus: clips with their texts, checked once, cut into parts, with their spectrograms beside them."""
