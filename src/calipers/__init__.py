"""Compiled answers to three questions of numerical code; the first: do two arrays agree?"""
