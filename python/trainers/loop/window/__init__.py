"""The accumulation window: forward, backward and step, and the guards over them."""
