"""PLACEHOLDER until the record codec lands."""
import pickle
def encode_record(r): return pickle.dumps(r)
def decode_record(b): return pickle.loads(b)
