"""What a decorated call records: its content and figures, and the span that carries them."""
