"""How good forecasts are: the same windows for our networks, other libraries' and what needs no network."""
