"""What happened, told in frozen records and counts to whoever asks; never the content."""
