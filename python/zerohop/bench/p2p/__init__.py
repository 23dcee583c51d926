"""`zerohop bench p2p`: arrays on GPUs of two processes of one host."""
