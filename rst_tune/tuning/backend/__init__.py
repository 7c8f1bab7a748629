"""Who runs trials: the protocol, Ray Tune (the only room that imports Ray), and a simulator."""
