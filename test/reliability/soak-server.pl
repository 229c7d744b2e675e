#!/usr/bin/perl
# A legacy MCP server over stdio for the soak: the tool `echo`, answered after DELAY_MS, with minimal CPU use.
#   PID_FILE        gets "PID GENERATION" when it starts, so that the driver knows which process to kill and which definition runs
#   GENERATION      number that each edit of the configuration raises
#   DELAY_MS        how long a call takes
#   LIST_EVERY_MS   how often the tool `extra` comes or goes, with notifications/tools/list_changed; 0: never
use strict;
use warnings;
use Time::HiRes 'time';
require(($0 =~ m{^(.*/)})[0] . '../fakes/legacy-pipe.pl');

open my $file, '>', "$ENV{PID_FILE}.new" or die "no pid file: $!";
print $file "$$ $ENV{GENERATION}\n";
close $file;
rename "$ENV{PID_FILE}.new", $ENV{PID_FILE} or die "no pid file: $!";

my $delay = $ENV{DELAY_MS} / 1_000;
my $every = $ENV{LIST_EVERY_MS} / 1_000;
my $echo = '{"name":"echo","description":"Answers with its input.","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}';
# Differs from `echo` in every member: a tool with the same definition would be taken for a renamed one.
my $extra = '{"name":"extra","description":"Comes and goes.","inputSchema":{"type":"object"}}';
my $has_extra = 0;
my $changes_at = $every ? time + $every : 0;
# Calls in the order they are due: all take equally long.
my @due;
my $buffer = '';

sub serve {
  my ($line) = @_;
  my ($id, $method) = request($line) or return;
  if ($method eq 'tools/call') {
    my ($text) = $line =~ /"text":"([^"]*)"/;
    return $delay ? push @due, [time + $delay, $id, $text] : answer($id, text_result($text));
  }
  return answer($id, '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"soak","version":"1"}}')
    if $method eq 'initialize';
  return answer($id, qq("result":{"tools":[$echo) . ($has_extra ? ",$extra" : '') . ']}') if $method eq 'tools/list';
  answer($id, usual_answer('soak', $method));
}

for (;;) {
  my $now = time;
  while (@due && $due[0][0] <= $now) { my (undef, $id, $text) = @{ shift @due }; answer($id, text_result($text)) }
  if ($every && $now >= $changes_at) {
    $changes_at = $now + $every;
    $has_extra = !$has_extra;
    syswrite STDOUT, qq({"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n);
  }
  my ($next) = sort { $a <=> $b } (@due ? $due[0][0] : ()), ($every ? $changes_at : ());
  vec(my $ready = '', fileno(STDIN), 1) = 1;
  my $wait = defined $next ? ($next > $now ? $next - $now : 0) : undef;
  next unless select $ready, undef, undef, $wait;
  sysread STDIN, $buffer, 1 << 16, length $buffer or last;
  while ($buffer =~ s/^(.*)\n//) { serve($1) }
}
