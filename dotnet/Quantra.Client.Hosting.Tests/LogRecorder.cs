using Microsoft.Extensions.Logging;

namespace Quantra.Client.Hosting.Tests;

/// <summary>Records log lines.</summary>
/// <param name="also">Called for each line on the logging thread.</param>
internal sealed class LogRecorder(Action<LogLine>? also = null) : ILoggerFactory, ILoggerProvider
{
    private readonly object _gate = new();
    private readonly List<LogLine> _lines = [];
    private TaskCompletionSource _changed = new(TaskCreationOptions.RunContinuationsAsynchronously);

    /// <summary>All lines so far.</summary>
    public IReadOnlyList<LogLine> Lines
    {
        get
        {
            lock (_gate)
                return [.. _lines];
        }
    }

    /// <summary>Waits for a line.</summary>
    public async Task<LogLine> WaitForLineAsync(Predicate<LogLine> predicate, CancellationToken cancellationToken)
    {
        while (true)
        {
            Task changed;
            lock (_gate)
            {
                if (_lines.Find(predicate) is { } found)
                    return found;
                changed = _changed.Task;
            }

            await changed.WaitAsync(TestTimeout.Value, cancellationToken);
        }
    }

    public void AddProvider(ILoggerProvider provider)
    {
    }

    public ILogger CreateLogger(string categoryName) => new Category(categoryName, this);

    public void Dispose()
    {
    }

    private void Add(LogLine line)
    {
        lock (_gate)
        {
            _lines.Add(line);
            _changed.SetResult();
            _changed = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        }

        also?.Invoke(line);
    }

    private sealed class Category(string name, LogRecorder log) : ILogger
    {
        public IDisposable? BeginScope<TState>(TState state)
            where TState : notnull => null;

        public bool IsEnabled(LogLevel logLevel) => true;

        public void Log<TState>(LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter) =>
            log.Add(new LogLine(name, logLevel, formatter(state, exception)));
    }
}
