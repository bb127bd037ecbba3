using System.Windows.Input;

namespace Quantra.Desktop.Mvvm;

/// <summary>An asynchronous command that is disabled while it runs.</summary>
/// <param name="work">The work, run on the UI thread.</param>
/// <param name="can">Whether the command is enabled; null = always.</param>
public sealed class AsyncCommand(Func<Task> work, Func<bool>? can = null) : ICommand
{
    private bool _isRunning;

    /// <inheritdoc/>
    public event EventHandler? CanExecuteChanged;

    /// <inheritdoc/>
    public bool CanExecute(object? parameter) => !_isRunning && (can is null || can());

    /// <inheritdoc/>
    /// <remarks>Exceptions are thrown on the UI thread, as in event handlers.</remarks>
    public async void Execute(object? parameter) => await RunAsync();

    /// <summary>Runs the command if it is enabled.</summary>
    public async Task RunAsync()
    {
        if (!CanExecute(null))
            return;
        _isRunning = true;
        Refresh();
        try
        {
            await work();
        }
        finally
        {
            _isRunning = false;
            Refresh();
        }
    }

    /// <summary>Raises CanExecuteChanged.</summary>
    public void Refresh() => CanExecuteChanged?.Invoke(this, EventArgs.Empty);
}
