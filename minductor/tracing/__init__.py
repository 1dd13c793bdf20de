"""What each stage did, shown where the user asked."""
