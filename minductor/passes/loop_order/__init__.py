"""The stage `loop_order`: joins kernels whose loops match once they are split, merged or unrolled."""
