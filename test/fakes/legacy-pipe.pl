# The common part of the legacy MCP servers here: it writes answers, and answers the methods that all of them have.
#   TOOLS=TEXT    the array with which they answer tools/list; without it they do not have this method
# To be loaded with: require(($0 =~ m{^(.*/)})[0] . 'legacy-pipe.pl');
use strict;
use warnings;
$| = 1;

# Writes the whole answer: if the pipe is full, the rest is written later.
sub answer {
  my ($id, $body) = @_;
  my $text = qq({"jsonrpc":"2.0","id":$id,$body}\n);
  my $at = 0;
  $at += syswrite(STDOUT, $text, length($text) - $at, $at) // exit 1 while $at < length $text;
}

# Id and method of a request; nothing for any other line.
sub request { return $_[0] =~ /"id":(\d+),"method":"([^"]+)"/ }

sub nonce_of { return ($_[0] =~ /"nonce":"([^"]+)"/)[0] }

sub text_result {
  my ($text, $more) = (@_, '');
  return qq("result":{"content":[{"type":"text","text":"$text"}]$more});
}

sub usual_answer {
  my ($name, $method) = @_;
  return qq("result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"$name","version":"1"}})
    if $method eq 'initialize';
  return '"result":{}' if $method eq 'ping';
  return qq("result":{"tools":$ENV{TOOLS}}) if $method eq 'tools/list' && $ENV{TOOLS};
  return '"error":{"code":-32601,"message":"Method not found"}';
}

1;
