"""What a World is made of: its store, its members, its barrier, and what is left of it when ranks are lost."""
