"""What a person sees: tables and one offline page. Computes nothing."""
