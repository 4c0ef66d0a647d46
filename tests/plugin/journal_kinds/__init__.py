"""A source, a decode format and a sink from outside the package, as another project would bring them."""
