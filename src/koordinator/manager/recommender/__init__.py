"""The recommender: learns from the usage of a workload's containers what they should request, and writes it to the
status of Recommendation objects."""
