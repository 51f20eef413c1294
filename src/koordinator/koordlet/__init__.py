"""koordlet, the node agent: measures the node and its pods, remembers, predicts and reports."""
