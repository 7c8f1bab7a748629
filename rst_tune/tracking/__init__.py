"""The record in MLflow. The only door to it."""
