"""What the agent has measured lately: samples by series, and averages, percentiles and latest values of them."""
