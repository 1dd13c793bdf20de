"""Wing D: what has an effect. Takes text and artefacts, gives things that run; refuses to know the other wings."""
