"""What `admit` decides in one pass: records and fleet in, intents out, recorded for replay."""
