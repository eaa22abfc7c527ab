"""ONNX models that keep a tensor in a file, written by hand as protobuf allows."""

from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, helper

# All lengths of "location" that protobuf reads: 8, and 8 with digits that add nothing.
LENGTHS = [b"\x08", b"\x88\x00", b"\x88\x80\x00", b"\x88\x80\x80\x80\x00"]
PLACES = ["initializer", "constant", "subgraph", "function"]
SIZE = 400


def reading(place: str, file: str, length: bytes = LENGTHS[1]) -> bytes:
    """q = obs + w - p, where w is float32 [SIZE] in a file, at some place.

    Inputs are ``obs/`` [batch, SIZE] and ``param/p`` [SIZE], the output ``q``.
    """
    tensor = TensorProto(
        name="w",
        data_type=TensorProto.FLOAT,
        dims=[SIZE],
        data_location=TensorProto.EXTERNAL,
        doc_string="@" * 64,
    )
    # Serialized with another field in their place, as long, so that sizes hold.
    hole = _field(12, b"@" * 64)
    entry = _field(13, b"\x0a" + length + b"location" + _field(2, file.encode()))
    entry += _field(12, b" " * (len(hole) - len(entry) - 2))
    data = _model(place, tensor).SerializeToString()
    assert hole in data
    return data.replace(hole, entry)


def _model(place: str, tensor: TensorProto) -> ModelProto:
    value = helper.make_tensor_value_info
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    constant = helper.make_node("Constant", [], ["w"])
    constant.attribute.append(
        AttributeProto(name="value", type=AttributeProto.TENSOR, t=tensor)
    )
    add = helper.make_node("Add", ["obs/", "w"], ["sum"])
    nodes, functions = [add], []
    if place == "constant":
        nodes = [constant, add]
    elif place == "function":
        functions = [
            helper.make_function("own", "More", [], ["w"], [constant], opsets[:1])
        ]
        nodes = [helper.make_node("More", [], ["w"], domain="own"), add]
    elif place == "subgraph":
        inner = GraphProto(name="inner", node=[constant], output=[value("w", 1, None)])
        yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
        nodes = [
            helper.make_node("Constant", [], ["yes"], value=yes),
            helper.make_node(
                "If", ["yes"], ["w0"], then_branch=inner, else_branch=inner
            ),
            helper.make_node("Add", ["obs/", "w0"], ["sum"]),
        ]
    nodes.append(helper.make_node("Sub", ["sum", "param/p"], ["q"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [value("obs/", 1, ["batch", SIZE]), value("param/p", 1, [SIZE])],
        [value("q", 1, ["batch", SIZE])],
        [tensor] if place == "initializer" else [],
    )
    return helper.make_model(
        graph, opset_imports=opsets, functions=functions, ir_version=9
    )


def _field(number: int, payload: bytes) -> bytes:
    """A field of bytes as protobuf writes it; of less than 128 bytes."""
    assert len(payload) < 128
    return bytes([number << 3 | 2, len(payload)]) + payload
