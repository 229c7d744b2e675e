#!/usr/bin/perl
# A legacy MCP server. Each call takes as long as it asks for, many run at a time, and the server writes down when they start and end.
#   LEDGER=FILE   the ledger: `start NONCE MS`, `end NONCE MS`, `cancelled NONCE MS`; MS is wall-clock time in ms since 1970
#   TOOLS=TEXT    the array with which it answers tools/list
# Arguments of a call: "nonce", and "sleepMs". A call that is cancelled is not answered.
use strict;
use warnings;
use Fcntl;
use Time::HiRes qw(time);
require(($0 =~ m{^(.*/)})[0] . 'legacy-pipe.pl');
sysopen my $ledger, $ENV{LEDGER}, O_WRONLY | O_APPEND | O_CREAT or die "no ledger: $!";
sub note { syswrite $ledger, sprintf("%s %s %.1f\n", $_[0], $_[1], time * 1000) }
my %sleeping; # id => [due, nonce]
my $buffer = '';
for (;;) {
  my ($next) = sort { $a <=> $b } map { $_->[0] } values %sleeping;
  my $wait = defined $next ? $next - time : undef;
  $wait = 0 if defined $wait && $wait < 0;
  vec(my $ready = '', fileno(STDIN), 1) = 1;
  if (select $ready, undef, undef, $wait) {
    sysread STDIN, $buffer, 1 << 16, length $buffer or exit 0;
  }
  while ($buffer =~ s/^(.*)\n//) {
    my $line = $1;
    if ($line =~ m{"method":"notifications/cancelled"} && $line =~ /"requestId":(\d+)/) {
      my $gone = delete $sleeping{$1};
      note('cancelled', $gone->[1]) if $gone;
      next;
    }
    my ($id, $method) = request($line) or next;
    if ($method ne 'tools/call') {
      answer($id, usual_answer('sleepy', $method));
      next;
    }
    my $nonce = nonce_of($line);
    my ($ms) = $line =~ /"sleepMs":(\d+)/;
    note('start', $nonce);
    $sleeping{$id} = [time + ($ms // 0) / 1000, $nonce];
  }
  my $now = time;
  for my $id (grep { $sleeping{$_}[0] <= $now } keys %sleeping) {
    my $nonce = (delete $sleeping{$id})->[1];
    note('end', $nonce);
    answer($id, text_result($nonce));
  }
}
