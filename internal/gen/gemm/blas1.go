package main

func blas1() {}
