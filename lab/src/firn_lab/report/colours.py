"""The colours of targets, in pages and pictures alike."""

# Okabe and Ito's can be told apart by everybody.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D00")
