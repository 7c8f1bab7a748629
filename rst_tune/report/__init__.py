"""Tables, figures and the HTML report. Every renderer draws an `Analysis`; this room computes no result itself."""
