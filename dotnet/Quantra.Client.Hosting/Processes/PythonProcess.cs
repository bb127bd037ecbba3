using System.ComponentModel;
using System.Diagnostics;
using System.Diagnostics.CodeAnalysis;
using System.Threading.Channels;

namespace Quantra.Client.Hosting.Processes;

/// <summary>A Python process. Its output is always read, and its child processes end with it.</summary>
internal sealed class PythonProcess : IAsyncDisposable
{
    /// <summary>Bytes to keep of a line of standard output. The card of a trained model is one line.</summary>
    private const int MaxOutputLine = 64 << 20;

    private const int MaxErrorLine = 16 << 10;

    /// <summary>How long to read remaining output after the exit. A child process may keep the pipes open.</summary>
    private static readonly TimeSpan DrainTime = TimeSpan.FromSeconds(1);

    private readonly Process _process;
    private readonly TimeProvider _time;
    private readonly Channel<string> _output = Channel.CreateUnbounded<string>(new() { SingleReader = true });
    private readonly RecentLines _errors = new();
    private readonly Func<string, string> _formatError;

    private PythonProcess(Process process, Func<string, string> formatError, TimeProvider time)
    {
        (_process, _formatError, _time) = (process, formatError, time);
        Ended = RunAsync();
    }

    /// <summary>Lines of standard output. Completes with the process.</summary>
    public ChannelReader<string> Output => _output.Reader;

    /// <summary>The exit code, available after the remaining output was read. After a signal it is 128 plus the signal's number.</summary>
    public Task<int> Ended { get; }

    /// <summary>The last 50 lines of standard error, oldest first.</summary>
    public IReadOnlyList<string> LastErrors => _errors.Snapshot();

    /// <summary>Starts a process, which takes some milliseconds.</summary>
    /// <param name="command">The command line.</param>
    /// <param name="formatError">Receives each line of standard error in order, and returns it in a readable form.</param>
    /// <param name="time">Clock for grace times.</param>
    /// <exception cref="QuantraException">CONFIGURATION_INVALID: the process cannot be started.</exception>
    [SuppressMessage("Reliability", "CA2000:Dispose objects before losing scope", Justification = "the returned object owns it")]
    public static PythonProcess Start(PythonCommand command, Func<string, string> formatError, TimeProvider time)
    {
        var process = new Process { StartInfo = command.StartInfo() };
        try
        {
            process.Start();
            return new PythonProcess(process, formatError, time);
        }
        catch (Win32Exception error)
        {
            process.Dispose();
            var python = command.Environment.Interpreter;
            throw PythonEnvironment.Refusal($"{python} cannot be run: {error.Message}; use another environment, or recreate this one", error);
        }
    }

    /// <summary>Closes standard input, which asks the process to end. Kills the process tree after the grace time.</summary>
    /// <param name="grace">How long to wait for the end.</param>
    /// <param name="forceStop">Cuts the wait short.</param>
    public async Task StopAsync(TimeSpan grace, CancellationToken forceStop)
    {
        CloseInput();
        try
        {
            await Ended.WaitAsync(grace, _time, forceStop).ConfigureAwait(false);
        }
        catch (Exception reason) when (reason is TimeoutException or OperationCanceledException)
        {
            await KillAsync().ConfigureAwait(false);
        }
    }

    /// <summary>Kills the process tree and waits for its end.</summary>
    public async Task KillAsync()
    {
        try
        {
            _process.Kill(entireProcessTree: true);
        }
        catch (Exception error) when (error is InvalidOperationException or Win32Exception or AggregateException)
        {
            // it or a child process has ended meanwhile
        }

        await Ended.ConfigureAwait(false);
    }

    /// <summary>Kills the process if it still runs.</summary>
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
            // it has ended already
        }
    }

    private async Task<int> RunAsync()
    {
        var reading = Task.WhenAll(
            DrainAsync(_process.StandardOutput.BaseStream, MaxOutputLine, line => _output.Writer.TryWrite(line)),
            DrainAsync(_process.StandardError.BaseStream, MaxErrorLine, line => _errors.Add(_formatError(line))));
        await _process.WaitForExitAsync(CancellationToken.None).ConfigureAwait(false);
        try
        {
            await reading.WaitAsync(DrainTime).ConfigureAwait(false);
        }
        catch (TimeoutException)
        {
            // a child process still runs and keeps the pipes open
        }
        finally
        {
            _output.Writer.Complete();
        }

        return _process.ExitCode;
    }

    private static async Task DrainAsync(Stream pipe, int maxBytes, Action<string> receive)
    {
        try
        {
            await foreach (var line in PipeLineReader.ReadAsync(pipe, maxBytes).ConfigureAwait(false))
                receive(line);
        }
        catch (Exception error) when (error is IOException or ObjectDisposedException or OperationCanceledException)
        {
            // the pipe was closed here because a child process held its other end
        }
    }
}
