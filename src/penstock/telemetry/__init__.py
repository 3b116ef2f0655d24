"""What is counted and told of requests, without their content."""
