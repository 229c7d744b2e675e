#!/usr/bin/perl
# A server that starts in milliseconds and lists twenty tools of about 250 bytes. Benchmarks start many of them.
use strict;
use warnings;
$| = 1;
my $tools = join ',', map {
  sprintf '{"name":"tool_%02d","description":"%s","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}',
    $_, 'Does what tool number ' . $_ . ' does with the text it is given, and answers with a text again; ' . ('x' x 40)
} 1 .. 20;
while (my $line = <STDIN>) {
  my ($id) = $line =~ /"id":\s*("[^"]*"|\d+)/ or next;
  my ($method) = $line =~ /"method":\s*"([^"]+)"/ or next;
  my $body =
      $method eq 'initialize' ? '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"twenty","version":"1"}}'
    : $method eq 'tools/list' ? qq("result":{"tools":[$tools]})
    : $method eq 'ping'       ? '"result":{}'
    : $method eq 'tools/call' ? '"result":{"content":[{"type":"text","text":"done"}]}'
    :                           '"error":{"code":-32601,"message":"Method not found"}';
  print qq({"jsonrpc":"2.0","id":$id,$body}\n);
}
