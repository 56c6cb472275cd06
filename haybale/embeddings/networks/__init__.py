"""Networks of encoders. Importing them imports torch."""
