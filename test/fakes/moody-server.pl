#!/usr/bin/perl
# A legacy MCP server whose mood is the content of a file, looked at before each answer, and which writes down what happens to it.
#   FOLDER        holds `mood` and `log`
#   DESCRIPTION   of the tool `read`, which its schema holds too
#   HINT          members added to every result of a call, such as "ttlMs":60000
# Moods: well; mute (calls and reads are not answered); held (calls are answered once it is well again, unless its input ends before); dying (ends at each call);
#        stillborn (ends before it speaks); silent (initialize is answered once it is no longer silent)
# Log:   start PID, call NONCE, read, cancelled, each on a line of its own.
# A cancelled request is answered by a log message, so that its silence is not taken for a hang.
# Tools: read (read-only), write; both answer with what "say" asks for, as an error if "fails" is true.
use strict;
use warnings;
use Fcntl;
$| = 1;
my $folder = $ENV{FOLDER};
sysopen my $log, "$folder/log", O_WRONLY | O_APPEND | O_CREAT or die "no log: $!";
sub note { syswrite $log, "$_[0]\n" }

sub mood {
  for (;;) {
    if (open my $file, '<', "$folder/mood") { local $/; my $mood = <$file>; return $mood if length $mood }
    select undef, undef, undef, 0.002;
  }
}
sub until_not { select undef, undef, undef, 0.002 while mood() eq $_[0] }

note("start $$");
exit 1 if mood() eq 'stillborn';
my $description = $ENV{DESCRIPTION} // 'reads';
my $hint = $ENV{HINT} ? ",$ENV{HINT}" : '';
my $read = qq({"name":"read","description":"$description","inputSchema":{"type":"object","properties":{"of":{"const":"$description"}}},"annotations":{"readOnlyHint":true}});
my $tools = qq([$read,{"name":"write","inputSchema":{"type":"object"}}]);
my $buffer = '';
while (sysread STDIN, $buffer, 1 << 16, length $buffer) {
  while ($buffer =~ s/^(.*)\n//) {
    my $line = $1;
    if ($line =~ m{"method":"notifications/cancelled"}) {
      syswrite STDOUT, qq({"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":"cancelled"}}\n);
      # After the message is in the pipe: a test that reads the log knows that the message is on its way.
      note('cancelled');
    }
    next unless $line =~ /"id":(\d+),"method":"([^"]+)"/;
    my ($id, $method) = ($1, $2);
    my $body = '"error":{"code":-32601,"message":"Method not found"}';
    if ($method eq 'initialize') {
      until_not('silent');
      $body = '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"moody","version":"1"}}';
    } elsif ($method eq 'ping') {
      $body = '"result":{}';
    } elsif ($method eq 'tools/list') {
      $body = qq("result":{"tools":$tools});
    } elsif ($method eq 'resources/read') {
      note('read');
      next if mood() eq 'mute';
      $body = '"result":{"contents":[]}';
    } elsif ($method eq 'tools/call') {
      my ($nonce) = $line =~ /"nonce":"([^"]+)"/;
      my ($text) = $line =~ /"say":"([^"]+)"/;
      note('call ' . ($nonce // ''));
      exit 3 if mood() eq 'dying';
      next if mood() eq 'mute';
      while (mood() eq 'held') {
        vec(my $ready = '', fileno(STDIN), 1) = 1;
        next unless select $ready, undef, undef, 0.002;
        sysread STDIN, $buffer, 1 << 16, length $buffer or exit 0;
      }
      $text //= 'ok';
      my $error = $line =~ /"fails":true/ ? ',"isError":true' : '';
      $body = $line =~ /"refuses":true/
        ? qq("error":{"code":-32000,"message":"$text"})
        : qq("result":{"content":[{"type":"text","text":"$text"}]$error$hint});
    }
    my $answer = qq({"jsonrpc":"2.0","id":$id,$body}\n);
    my $at = 0;
    $at += syswrite(STDOUT, $answer, length($answer) - $at, $at) // exit 1 while $at < length $answer;
  }
}
