"""What is released, as a user gets it: built, installed into fresh environments, started outside the
checkout."""
