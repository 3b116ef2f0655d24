"""Who may call the gateway: keys, what each allows, and where those made at run time are kept."""
