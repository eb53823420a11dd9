"""What a check found, for people, for programs, for CI and for a browser."""
