"""The device: what computes, in which precision, with how much memory and from which seeds."""
