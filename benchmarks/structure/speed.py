"""stub"""
def rows(*a, **k): return []
