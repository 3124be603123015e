"""The one spelling in which a value is an answer to a schema (docs/constraints.md): as json.dumps
writes it, an object's declared members first and in the schema's order; integers without fraction."""
import json


def find(root, ref):
    if not ref.startswith("#"):
        return None
    at = root
    for part in ref[1:].split("/")[1:]:
        part = part.replace("%25", "%").replace("%22", '"').replace("~1", "/").replace("~0", "~")
        if isinstance(at, list):
            at = at[int(part)] if part.isdigit() and int(part) < len(at) else None
        elif isinstance(at, dict):
            at = at.get(part)
        if at is None:
            return None
    return at


def parts(root, schema, depth=0):
    """The schemas that say something of the same value, in the order in which they are read."""
    if not isinstance(schema, dict) or depth > 8:
        return
    if not isinstance(schema.get("$ref"), str):
        yield schema
    else:
        yield schema
        target = find(root, schema["$ref"])
        if target is not None:
            yield from parts(root, target, depth + 1)
    for key in ("allOf", "anyOf", "oneOf"):
        for one in schema.get(key, []) if isinstance(schema.get(key), list) else []:
            yield from parts(root, one, depth + 1)
    for key in ("not", "if", "then", "else"):
        if key in schema:
            yield from parts(root, schema[key], depth + 1)
    for one in (schema.get("dependencies") or {}).values():
        yield from parts(root, one, depth + 1)


def names(root, schemas):
    out = []
    for schema in schemas:
        for name in list(schema.get("properties") or {}):
            out.append(name)
        out += [n for n in schema.get("required") or [] if isinstance(n, str)]
        values = list(schema.get("enum") or []) + ([schema["const"]] if "const" in schema else [])
        for value in values:
            if isinstance(value, dict):
                out += list(value)
        for key, one in (schema.get("dependencies") or {}).items():
            out += [key] + (one if isinstance(one, list) else [])
    return list(dict.fromkeys(out))


def order(root, schemas, value):
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, list):
        out = []
        for i, item in enumerate(value):
            below = []
            for schema in schemas:
                items = schema.get("items")
                if isinstance(items, list):
                    one = items[i] if i < len(items) else schema.get("additionalItems")
                else:
                    one = items
                below += list(parts(root, one))
                for whole in schema.get("enum", []) + [schema.get("const")]:
                    if isinstance(whole, list) and i < len(whole):
                        below.append({"const": whole[i]})
            out.append(order(root, below, item))
        return out
    if not isinstance(value, dict):
        return value
    declared = [n for n in names(root, schemas) if n in value]
    out = {}
    for name in declared + [n for n in value if n not in declared]:
        below = []
        for schema in schemas:
            one = (schema.get("properties") or {}).get(name)
            if one is None and isinstance(schema.get("additionalProperties"), dict):
                one = schema["additionalProperties"]
            below += list(parts(root, one))
            for whole in schema.get("enum", []) + [schema.get("const")]:
                if isinstance(whole, dict) and name in whole:
                    below.append({"const": whole[name]})
        out[name] = order(root, below, value[name])
    return out


def canonical(schema, value, ascii_only=True):
    return json.dumps(order(schema, list(parts(schema, schema)), value), ensure_ascii=ascii_only)
