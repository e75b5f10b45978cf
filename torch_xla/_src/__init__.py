"""What is behind the public names; anything in here may change."""
