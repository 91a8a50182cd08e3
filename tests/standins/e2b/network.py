"""The checks of a sandbox's network settings."""
import ipaddress
import re

RULE_DOMAINS_MAX, RULE_HEADERS_MAX, DOMAIN_MAX, HEADER_NAME_MAX, HEADER_VALUE_MAX, MARKERS_MAX = 10, 20, 128, 64, 2048, 32
ALL = "0.0.0.0/0"
DOMAIN = re.compile(r"(\*\.)?([a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?\.)*[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?\Z")
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
MARKER = re.compile(r"\$\{e2b\.(secrets\.[A-Za-z0-9_-]+|identity\.tokens\.[A-Za-z0-9_-]+)\}")


def _is_address(text):
    try:
        ipaddress.ip_network(text, strict=False)
        return True
    except ValueError:
        return False


def _wrong_rules(rules, has_feature, envd):
    if not rules:
        return None
    if not has_feature:
        return "Network transform rules are not available for your team."
    if envd < (0, 5, 13):
        return "Network transform rules need a newer template."
    if len(rules) > RULE_DOMAINS_MAX:
        return f"Network rules can have at most {RULE_DOMAINS_MAX} domains."
    for domain, several in rules.items():
        if len(domain) > DOMAIN_MAX or not DOMAIN.match(domain) or _is_address(domain):
            return f"invalid rule domain {domain!r}"
        if len(several) > 1:
            return f"rule for {domain!r} can have one transform"
        headers = (several[0].get("transform") or {}).get("headers", {}) if several else {}
        if len(headers) > RULE_HEADERS_MAX:
            return f"rule for {domain!r} has more than {RULE_HEADERS_MAX} headers"
        for name, value in headers.items():
            if len(name) > HEADER_NAME_MAX or not TOKEN.match(name):
                return f"invalid header name in the rule for {domain!r}"
            if len(value) > HEADER_VALUE_MAX:
                return f"header value in the rule for {domain!r} is too long"
            if len(MARKER.findall(value)) != value.count("${e2b.") or len(MARKER.findall(value)) > MARKERS_MAX:
                return f"malformed placeholder in the rule for {domain!r}"
    return None


def wrong(network, is_secure=True, has_rules=True, has_proxy=False, envd=(0, 6, 13)):
    """(status, message) of what is refused in it, or None."""
    deny, allow = network.get("denyOut") or [], network.get("allowOut") or []
    for entry in deny:
        if not _is_address(entry) or (entry.split("/")[0] in ("0.0.0.0", "::") and entry != ALL):
            return 400, f"invalid denied CIDR {entry}"
    domains = [e for e in allow if not _is_address(e)]
    for entry in domains:
        if not DOMAIN.match(entry) or len(entry) > DOMAIN_MAX:
            return 400, f"invalid allowed domain {entry}"
    if domains and ALL not in deny:
        return 400, f"When specifying allowed domains in allow out, you must include '{ALL}' in deny out to block all other traffic."
    if network.get("allowPublicTraffic") is False and not is_secure:
        return 400, "You cannot disable public traffic without secured access."
    if 49983 in (network.get("httpsPorts") or []):
        return 400, "port 49983 cannot speak TLS"
    if network.get("egressProxy") and not has_proxy:
        return 403, "Egress proxy is not available for your team."
    message = _wrong_rules(network.get("rules") or {}, has_rules, envd)
    return (400, message) if message else None
