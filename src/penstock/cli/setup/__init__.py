"""What commands need before they start: configuration, engine, gateway."""
