package main

func draw(from, to string) error { return nil }
