"""LowNodeLoad: relieves nodes that are hot by what they really use."""
