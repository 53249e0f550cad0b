"""A shop: what is bought is confirmed by mail, in the background."""
