"""What verbs return: plain frozen data that prints as text, shows itself in a notebook and goes to JSON."""
