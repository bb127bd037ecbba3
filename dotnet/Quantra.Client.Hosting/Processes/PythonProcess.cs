using System.ComponentModel;
using System.Diagnostics;
using System.Diagnostics.CodeAnalysis;
using System.Threading.Channels;

namespace Quantra.Client.Hosting.Processes;

/// <summary>A Python process: both of its pipes are always drained, and its end leaves nothing of it behind.</summary>
internal sealed class PythonProcess : IAsyncDisposable
{
    /// <summary>Bytes of a line of standard output: the card of a trained model is one.</summary>
    private const int LongestOutput = 64 << 20;

    private const int LongestError = 16 << 10;

    /// <summary>How long what was written before the end may take to be read: a process of its own may hold the pipes open.</summary>
    private static readonly TimeSpan Patience = TimeSpan.FromSeconds(1);

    private readonly Process _process;
    private readonly TimeProvider _time;
    private readonly Channel<string> _output = Channel.CreateUnbounded<string>(new() { SingleReader = true });
    private readonly LastLines _errors = new();
    private readonly Func<string, string> _hear;

    private PythonProcess(Process process, Func<string, string> hear, TimeProvider time)
    {
        (_process, _hear, _time) = (process, hear, time);
        Ended = EndAsync();
    }

    /// <summary>Lines of standard output; it completes with the process.</summary>
    public ChannelReader<string> Output => _output.Reader;

    /// <summary>The exit code, once what was written before has been read; 128 and the signal's number after a signal.</summary>
    public Task<int> Ended { get; }

    /// <summary>The last 50 lines of standard error, oldest first.</summary>
    public IReadOnlyList<string> LastErrors => _errors.Snapshot();

    /// <summary>Starts a process. It takes some milliseconds.</summary>
    /// <param name="command">What to run.</param>
    /// <param name="hear">Told each line of standard error, one after the other; gives it as people should read it.</param>
    /// <param name="time">Of grace times.</param>
    /// <exception cref="QuantraException">CONFIGURATION_INVALID: the system cannot run it.</exception>
    [SuppressMessage("Reliability", "CA2000:Dispose objects before losing scope", Justification = "what is returned owns it")]
    public static PythonProcess Start(PythonCommand command, Func<string, string> hear, TimeProvider time)
    {
        var process = new Process { StartInfo = command.StartInfo() };
        try
        {
            process.Start();
            return new PythonProcess(process, hear, time);
        }
        catch (Win32Exception error)
        {
            process.Dispose();
            var python = command.Environment.Interpreter;
            throw PythonEnvironment.Refusal($"{python} cannot be run: {error.Message}; name another environment, or make this one anew", error);
        }
    }

    /// <summary>Closes standard input, which asks the process to end, waits for that, and ends it with all processes of its own by force.</summary>
    /// <param name="grace">How long to wait before.</param>
    /// <param name="hurry">Cuts the wait short.</param>
    public async Task StopAsync(TimeSpan grace, CancellationToken hurry)
    {
        CloseInput();
        try
        {
            await Ended.WaitAsync(grace, _time, hurry).ConfigureAwait(false);
        }
        catch (Exception reason) when (reason is TimeoutException or OperationCanceledException)
        {
            await KillAsync().ConfigureAwait(false);
        }
    }

    /// <summary>Ends the process and all processes of its own by force, and waits for that.</summary>
    public async Task KillAsync()
    {
        try
        {
            _process.Kill(entireProcessTree: true);
        }
        catch (Exception error) when (error is InvalidOperationException or Win32Exception or AggregateException)
        {
            // it, or one of its own, ended meanwhile
        }

        await Ended.ConfigureAwait(false);
    }

    /// <summary>Ends what still runs by force.</summary>
    public async ValueTask DisposeAsync()
    {
        if (!Ended.IsCompleted)
            await KillAsync().ConfigureAwait(false);
        _process.StandardInput.Dispose();
        _process.StandardOutput.Dispose();
        _process.StandardError.Dispose();
        _process.Dispose();
    }

    private void CloseInput()
    {
        try
        {
            _process.StandardInput.Close();
        }
        catch (IOException)
        {
            // it has gone already
        }
    }

    private async Task<int> EndAsync()
    {
        var reading = Task.WhenAll(
            DrainAsync(_process.StandardOutput.BaseStream, LongestOutput, line => _output.Writer.TryWrite(line)),
            DrainAsync(_process.StandardError.BaseStream, LongestError, line => _errors.Add(_hear(line))));
        await _process.WaitForExitAsync(CancellationToken.None).ConfigureAwait(false);
        try
        {
            await reading.WaitAsync(Patience).ConfigureAwait(false);
        }
        catch (TimeoutException)
        {
            // a process of its own goes on, and holds the pipes
        }
        finally
        {
            _output.Writer.Complete();
        }

        return _process.ExitCode;
    }

    private static async Task DrainAsync(Stream pipe, int longest, Action<string> hear)
    {
        try
        {
            await foreach (var line in PipeLines.ReadAsync(pipe, longest).ConfigureAwait(false))
                hear(line);
        }
        catch (Exception error) when (error is IOException or ObjectDisposedException or OperationCanceledException)
        {
            // the pipe was closed here, because a process of the process held its other end
        }
    }
}
