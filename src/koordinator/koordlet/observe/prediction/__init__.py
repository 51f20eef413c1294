"""Forecasts of peaks: decaying histograms of what pods, priority classes and the system use, kept over restarts."""
