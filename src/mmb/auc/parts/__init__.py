"""What objectives are made of: scores, weights, margin loss, pairs, thresholds."""
